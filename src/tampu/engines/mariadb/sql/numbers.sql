-- Out: the first number of a block
SELECT NEXTVAL(tampu_number)
