"""PostgreSQL and MariaDB as stores for Spark."""
