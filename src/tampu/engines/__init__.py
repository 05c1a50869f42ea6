"""Where messages live: the port every engine offers, and one folder per engine."""
