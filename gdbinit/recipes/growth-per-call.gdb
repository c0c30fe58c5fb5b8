# Does the heap grow from one call of a function to the next? The same as growth-per-call.yaml, by hand.
#
# Copy this file, change the lines marked <--, then:
#   $ gdbmem launch --massif ./program -- ARGUMENTS
#   (gdb) source growth-per-call.gdb

# A snapshot when handle_request() has returned, for the first 100 calls. The program does not stop there;
# `info breakpoints` lists it and `delete` removes it, as any breakpoint.
massif-break --name handled --first 100 --after handle_request
#                                               ^^^^^^^^^^^^^^ <-- any location that gdb takes

# Run to the end of the program, or to a breakpoint of yours.
continue

# Which call paths grew between the tenth call and the last one, with their source lines.
massif-diff handled#10 handled
