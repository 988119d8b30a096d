"""Produces, consumes, reconnects and commits with stomp.py: client_stomp_py.py PORT VERSION. Prints what it has done."""

import queue
import sys

import stomp

PORT, VERSION = int(sys.argv[1]), sys.argv[2]
CONNECTIONS = {"1.0": stomp.Connection10, "1.1": stomp.Connection11, "1.2": stomp.Connection12}
PATIENCE = 20


class Inbox(stomp.ConnectionListener):
    def __init__(self):
        self.messages = queue.Queue()
        self.receipts = queue.Queue()
        self.errors = queue.Queue()

    def on_message(self, frame):
        self.messages.put(frame)

    def on_receipt(self, frame):
        self.receipts.put(frame.headers["receipt-id"])

    def on_error(self, frame):
        self.errors.put(frame)


def connect():
    connection = CONNECTIONS[VERSION]([("127.0.0.1", PORT)])
    inbox = Inbox()
    connection.set_listener("inbox", inbox)
    connection.connect(wait=True)
    return connection, inbox


def bodies(inbox, count):
    return [inbox.messages.get(timeout=PATIENCE) for _ in range(count)]


def texts(frames):
    return [frame.body for frame in frames]


def acknowledge(connection, frame):
    if VERSION == "1.2":
        connection.ack(frame.headers["ack"])
    elif VERSION == "1.1":
        connection.ack(frame.headers["message-id"], frame.headers["subscription"])
    else:
        connection.ack(frame.headers["message-id"])


QUEUE = "/queue/py-" + VERSION
connection, inbox = connect()
for number in range(100):
    connection.send(QUEUE, str(number), headers={"receipt": "last"} if number == 99 else {})
assert inbox.receipts.get(timeout=PATIENCE) == "last"
connection.subscribe(QUEUE, id="1", ack="client-individual")
frames = bodies(inbox, 100)
assert texts(frames) == [str(number) for number in range(100)]
for frame in frames[:50]:
    acknowledge(connection, frame)
connection.disconnect(receipt="bye")
assert inbox.receipts.get(timeout=PATIENCE) == "bye"

connection, inbox = connect()
connection.subscribe(QUEUE, id="1", ack="client")
frames = bodies(inbox, 50)
assert texts(frames) == [str(number) for number in range(50, 100)]
assert all(frame.headers["redelivered"] == "true" for frame in frames)
acknowledge(connection, frames[-1])

transaction = connection.begin()
connection.send(QUEUE, "rolled back", transaction=transaction)
connection.abort(transaction)
transaction = connection.begin()
connection.send(QUEUE, "committed", transaction=transaction)
connection.commit(transaction)
frame = inbox.messages.get(timeout=PATIENCE)
assert frame.body == "committed", frame.body
acknowledge(connection, frame)
assert inbox.errors.empty(), inbox.errors.get()
connection.disconnect(receipt="end")
assert inbox.receipts.get(timeout=PATIENCE) == "end"
print("done")
