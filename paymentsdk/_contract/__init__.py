"""An operation, declared as data, and the rules for each kind of operation."""
