"""One effect per order: the order and its message in one commit, later the ack and its effect in one commit."""

import tampu

with tampu.open("shop.db") as store:
    with store.transaction() as tx:
        tx.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, item TEXT, shipped INTEGER DEFAULT 0)")

    # Both or neither: no order without its message, and no message without its order.
    with store.transaction() as tx:
        order = tx.execute("INSERT INTO orders (item) VALUES (?)", ("tea",)).lastrowid
        tx.publish("shipping", {"order": order}, type="order.ship")

    try:
        with store.transaction() as tx:
            tx.execute("INSERT INTO orders (item) VALUES (?)", ("coffee",))
            tx.publish("shipping", {"order": "never"})
            raise RuntimeError("the customer changed her mind")
    except RuntimeError as error:
        print(f"nothing was kept: {error}")

    # The effect and the ack in one commit. A crash in between undoes both, and the message is delivered again.
    for lease in store.claim("shipping", limit=10):
        with store.transaction() as tx:
            tx.execute("UPDATE orders SET shipped = shipped + 1 WHERE id = ?", (lease.payload["order"],))
            tx.ack(lease)

    with store.transaction() as tx:
        for row in tx.execute("SELECT id, item, shipped FROM orders"):
            print("order {}: {}, shipped {} time".format(*row))
    print(f"shipping: {store.stats('shipping').counts}")
