#!/bin/bash
# test_job.sh NAME MODE: the worker of the service tests. Says in /run/acc-test/NAME what happens to it.
name=$1
mode=$2
notes=/run/acc-test/$name
mkdir -p "$notes"
echo "hello from rank $RANK attempt $TORCHELASTIC_RESTART_COUNT"
case $mode in
  ignore_term) trap 'echo "$RANK" >>"$notes/terminated"' TERM ;;
  *) trap 'echo "$RANK" >>"$notes/terminated"; exit 0' TERM ;;
esac
# A descendant that leaves for a session of its own: it must not outlive the job either.
setsid sleep 1000 &
echo $! >>"$notes/pids"
echo $$ >>"$notes/pids"
case $mode in
  fail) [ "$RANK" = 1 ] && { echo "rank 1 gives up" >&2; exit 7; } ;;
  fail_once)
    if [ "$RANK$TORCHELASTIC_RESTART_COUNT" = 10 ]; then
      # Not before rank 0 has said that it runs, or it would be ended too soon to say so.
      for ((i = 0; i < 1000; ++i)); do [ -s "$notes/started" ] && break; sleep 0.01; done
      exit 7
    fi ;;
esac
echo "$RANK" >>"$notes/started"
while :; do
  sleep 1000 &
  wait $!
done
