# Debian links redis-server with jemalloc. The C library in LD_PRELOAD, after the allocator if there
# is one, comes before jemalloc in the search for malloc.
LD_PRELOAD="$LD_PRELOAD:/lib/x86_64-linux-gnu/libc.so.6"
export LD_PRELOAD
exec redis-server --port 0 --unixsocket "$CASE_WORK/socket" --dir "$CASE_WORK" \
    --save '' --appendonly no --activedefrag no --loglevel warning
