# A shell of SQLite that answers what comes by one pipe on another.
mkfifo "$CASE_WORK/requests" "$CASE_WORK/answers"
exec sqlite3 -batch -cmd ".load $CASE_ENV/tidy" :memory: \
    <"$CASE_WORK/requests" >"$CASE_WORK/answers"
