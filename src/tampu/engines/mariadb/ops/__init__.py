"""Operations that take several statements on MariaDB, by verb. `table` lists them by name."""
