"""The ledger of a resident set, and single blocks of a heap."""
