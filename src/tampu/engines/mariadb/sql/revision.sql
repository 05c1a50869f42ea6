-- Out: the number that changes with every change of a document
SELECT n FROM tampu_revision WHERE one = 1
