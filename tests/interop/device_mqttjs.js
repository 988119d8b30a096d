// A device that publishes numbered messages with MQTT.js over a kept session.
//
// Arguments: URL of the broker, client identifier, topic, QoS. Standard input: how many messages may have been published in total, one
// number a line. Standard output: `acked <number>` for each message that the broker has taken over.
'use strict'

const mqtt = require('mqtt')
const readline = require('readline')

const [url, clientId, topic, qos] = process.argv.slice(2)

const client = mqtt.connect(url, {
  clientId,
  clean: false,
  protocolVersion: 5,
  properties: { sessionExpiryInterval: 0xffffffff },
  keepalive: 10,
  reconnectPeriod: 100,
  connectTimeout: 5000
})
// Broken connections are part of the test; the library connects again.
client.on('error', () => {})

let published = 0
let acked = 0
let inputEnded = false

function endIfDone () {
  if (inputEnded && acked === published) client.end(false, {}, () => process.exit(0))
}

function publish (number) {
  client.publish(topic, String(number), { qos: Number(qos) }, (error) => {
    if (error) {
      console.log(`error ${number} ${error.message}`)
      process.exit(1)
    }
    acked += 1
    console.log(`acked ${number}`)
    endIfDone()
  })
}

const input = readline.createInterface({ input: process.stdin })
input.on('line', (line) => {
  while (published < Number(line)) {
    publish(published)
    published += 1
  }
})
input.on('close', () => {
  inputEnded = true
  endIfDone()
})
