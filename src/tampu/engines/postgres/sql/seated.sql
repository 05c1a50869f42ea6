-- Out: who has the keeper's seat, if somebody has
SELECT holder FROM tampu.seat WHERE name = 'keeper' AND until >= clock_timestamp()
