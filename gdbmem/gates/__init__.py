"""The outcomes of gates, in the forms that continuous integration reads."""
