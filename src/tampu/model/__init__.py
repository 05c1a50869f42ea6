"""What things are: messages, leases, outcomes, queue settings, errors. Plain frozen structs, no input or output."""
