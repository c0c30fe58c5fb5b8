"""Files that valgrind's tools write: massif, memcheck, DHAT, execution trees."""
