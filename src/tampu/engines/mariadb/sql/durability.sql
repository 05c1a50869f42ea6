-- Out: when the log goes to disk, whether there is a binary log, how often that goes to disk, most bytes of a packet
SELECT @@GLOBAL.innodb_flush_log_at_trx_commit, @@GLOBAL.log_bin, @@GLOBAL.sync_binlog, @@max_allowed_packet
