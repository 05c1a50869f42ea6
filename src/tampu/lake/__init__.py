"""The lake: tables that Spark keeps from the journal and the ended messages, and what reads them."""
