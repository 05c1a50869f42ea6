"""PostgreSQL and MariaDB as Arrow stores."""
