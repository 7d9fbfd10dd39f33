# One process with 16 threads, as a small Rails application runs.
environment "production"
threads 16, 16
workers 0
raise_exception_on_sigterm false
bind "unix://#{ENV.fetch("CASE_WORK")}/socket"
# The engine ends the run by closing the standard input.
Thread.new { $stdin.read; Process.kill(:TERM, Process.pid) }
