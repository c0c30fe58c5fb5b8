# How does the heap grow while a program works through its input? The same as growth-over-time.yaml, by hand.
#
# Copy this file, change the lines marked <--, then:
#   $ gdbmem launch --massif ./program -- ARGUMENTS
#   (gdb) source growth-over-time.gdb

# One snapshot before the work begins …
tbreak main.cpp:100
#      ^^^^^^^^^^^^ <-- a line before the loop
continue
massif-snap start

# … and one every 500 rounds, eight in all, while the program runs on. A condition is possible, too.
massif-break --name round --every 500 --first 8 main.cpp:120 if input_size > 0
#                                               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ <-- a line inside the loop
continue

# All snapshots with their sizes; what the loop added in all; what the last 500 rounds added.
massif-list
massif-diff start round
massif-diff round#7 round#8
