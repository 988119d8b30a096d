"""A device that publishes numbered messages with paho-mqtt over a kept session.

Arguments: port, client identifier, topic, QoS. Standard input: how many messages may have been published in total, one
number a line. Standard output: `acked <number>` for each message that the broker has taken over.
"""

import queue
import sys
import threading

import paho.mqtt.client as mqtt


class Device:
    def __init__(self, port, name, topic, qos):
        self.topic = topic
        self.qos = qos
        self.lock = threading.Lock()
        self.numbers = {}
        self.acked = queue.Queue()
        self.client = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2, client_id=name, clean_session=False, protocol=mqtt.MQTTv311
        )
        self.client.max_inflight_messages_set(20)
        self.client.max_queued_messages_set(0)
        self.client.reconnect_delay_set(min_delay=0.1, max_delay=0.5)
        # Called while the library holds a lock of its own, so it only leaves a note.
        self.client.on_publish = lambda client, data, mid, reason, properties: self.acked.put(mid)
        self.client.connect("127.0.0.1", port, keepalive=10)
        self.client.loop_start()

    def publish(self, number):
        with self.lock:
            info = self.client.publish(self.topic, str(number), qos=self.qos)
            self.numbers[info.mid] = number

    def report(self):
        while (mid := self.acked.get()) is not None:
            with self.lock:
                number = self.numbers.pop(mid)
            print("acked", number, flush=True)

    def run(self):
        reporter = threading.Thread(target=self.report)
        reporter.start()
        published = 0
        for line in sys.stdin:
            while published < int(line):
                self.publish(published)
                published += 1
        while self.numbers:
            threading.Event().wait(0.01)
        self.acked.put(None)
        reporter.join()
        self.client.disconnect()
        self.client.loop_stop()


if __name__ == "__main__":
    Device(int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])).run()
