"""A notebook as a program: work on a small queue, write it to the lake, query gold, draw, and replay dead messages.

The `# %%` cells run one by one in VS Code, Spyder or Jupyter (with jupytext), or all at once: python lake_notebook.py.
It needs tampu[spark]. It makes notebook.db, notebook.lake and notebook.html in this folder.
"""

# %% Some work: three in forty fail for good, one needs a second try.
from pyspark.sql import DataFrame, SparkSession

import tampu
import tampu.spark
from tampu.lake.insights import gather
from tampu.lake.query import Lake
from tampu.lake.replay import Replay
from tampu.lake.report import write
from tampu.lake.run import run_once
from tampu.lake.tables import table

store = tampu.open("notebook.db", maintenance=False)
store.queues.put("invoices", max_attempts=2, backoff=tampu.fixed(0))
store.publish_many("invoices", [tampu.NewMessage({"number": n}, type="invoice.send") for n in range(40)])
while leases := store.claim("invoices", limit=10, worker="notebook"):
    for lease in leases:
        number = lease.payload["number"]
        if number % 15 == 9 or (number == 20 and lease.attempt == 1):
            store.nack(lease, error=f"ConnectionError: no route to printer {number}", delay=0)
        else:
            store.ack(lease, result={"pages": 1 + number % 3})
print(f"worked: {store.stats('invoices').done} done, {store.stats('invoices').dead} dead")


# %% A table of our own, built with the others. Its argument names what it reads: payloads and results, parsed.
@table("office.pages", key=("tenant", "day", "queue"), expect={"paper was used": "pages > 0"})
def pages(spark: SparkSession, bronze_payloads: DataFrame) -> DataFrame:
    """Pages printed, by day."""
    return spark.sql(
        "SELECT queue, sum(result:pages::bigint) AS pages, max(payload:number::int) AS number, day, tenant"
        " FROM {ended} WHERE state = 'done' GROUP BY ALL",
        ended=bronze_payloads,
    )


# %% The pipeline: from the journal to bronze, silver and gold.
small = {"spark.sql.shuffle.partitions": "1", "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
spark = tampu.spark.session("local[2]", config=small)
run_once(spark, "notebook.db", "notebook.lake", tables=[pages])
lake = Lake("notebook.lake")

# %% Gold, in SQL (DuckDB; Spark is only needed to write).
with lake.ask() as ask:
    for row in ask.rows(
        "SELECT queue, sum(published) AS n, sum(failed) AS failed FROM gold.queue_minutes GROUP BY queue"
    ):
        print(f"gold: {row['queue']}: {row['n']} in, {row['failed']} attempts failed")
    printed = ask.one("SELECT sum(pages) AS n, max(number) AS number FROM office.pages")
    largest = ask.one("SELECT max(payload.number::INT) AS n FROM bronze.payloads WHERE state = 'done'")
    print(f"office: {printed['n']} pages, up to invoice {printed['number']} of {largest['n']}")

# %% Failures that look alike, and a report with charts.
insights = gather(lake, days=1)
for failure in insights.failures:
    print(f"fails: {failure.error.rstrip('0123456789 ')}: {failure.dead} dead after {failure.attempts} attempts")
print(f"report: {write(insights, 'notebook.html')}")

# %% The printer is back: dead messages run again, as new messages; a second replay changes nothing.
for _ in range(2):
    done = Replay(store, lake, where="state = 'dead'", replay_id="printer-is-back").run()
    print(f"replay: {done.new} new, {done.earlier} before")
for lease in store.claim("invoices", limit=10, worker="notebook"):
    store.ack(lease, result={"pages": 1})
print(f"left: {store.stats('invoices').depth}")

# %% The end.
spark.stop()
store.close()
