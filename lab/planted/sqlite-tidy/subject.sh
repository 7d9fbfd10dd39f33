# A shell of SQLite that answers what comes by one pipe on another. Its heap is too small for a
# purge thread, which answers `neap stat`.
export NEAP_PURGE_THREAD=always
mkfifo "$CASE_WORK/requests" "$CASE_WORK/answers"
exec sqlite3 -batch -cmd ".load '$CASE_ENV/tidy'" :memory: \
    <"$CASE_WORK/requests" >"$CASE_WORK/answers"
