"""`count.py STATE N`: fails unless the stack has N sockets in that state."""

import os
import socket
import sys

state, number = sys.argv[1:]
connection = socket.socket(socket.AF_UNIX)
connection.connect(os.environ["LIGHTWAIT_STATE"])
text = connection.makefile().read()
found = sum(line.split()[-1] == state for line in text.splitlines())
if found != int(number):
    sys.exit(f"{found} sockets in {state}, not {number}:\n{text}")
