"""The whole life of a message: publish, claim, ack, and a look at what is left of it."""

import tampu

with tampu.open("hello.db") as q:
    sent = q.publish("greetings", {"name": "Ada"}, type="greeting.say")
    print(f"published {sent.id}, it is {sent.state}")

    for lease in q.claim("greetings", limit=10, worker="hello"):
        print(f"hello, {lease.payload['name']}! (attempt {lease.attempt})")
        q.ack(lease, result={"said": True})

    seen = q.get(sent.id)
    print(f"now it is {seen.state}, with result {seen.result}")
