"""What verbs share: entering and leaving indexes, groups and their rates, fair order, endings, names of units."""
