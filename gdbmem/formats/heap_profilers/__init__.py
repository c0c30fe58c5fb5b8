"""Files of other heap profilers: gperftools, heaptrack, jemalloc, memray, pprof, Java's agents."""
