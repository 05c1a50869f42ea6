"""The whole life of a message: publish, claim, ack, and read its result."""

import tampu

with tampu.open("hello.db") as store:
    sent = store.publish("greetings", {"name": "Ada"}, type="greeting.say")
    print(f"published {sent.id}, it is {sent.state}")

    for lease in store.claim("greetings", limit=10, worker="hello"):
        print(f"hello, {lease.payload['name']}! (attempt {lease.attempt})")
        store.ack(lease, result={"said": True})

    seen = store.get(sent.id)
    print(f"now it is {seen.state}, with result {seen.result}")
