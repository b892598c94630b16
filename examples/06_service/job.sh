#!/bin/sh
# Works for $1 seconds and saves its progress when it is asked to stop (SIGTERM), as a service's job should.
trap 'echo "rank $RANK: saved at second $second, goodbye"; exit 0' TERM
second=0
echo "rank $RANK: working"
while [ "$second" -lt "${1:-10}" ]; do
  second=$((second + 1))
  sleep 1 &
  wait $!
done
echo "rank $RANK: done after $second seconds"
