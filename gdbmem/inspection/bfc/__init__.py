"""Reading the pools of BFC allocators from processes and files."""
