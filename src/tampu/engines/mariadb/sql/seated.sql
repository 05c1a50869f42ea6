-- Out: who has the keeper's seat, if somebody has
SELECT holder FROM tampu_seat WHERE name = 'keeper'
  AND until >= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
