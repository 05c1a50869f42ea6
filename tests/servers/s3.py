"""A private S3: moto's server in a process of its own, on a free port of this machine, with one bucket."""

from __future__ import annotations

import atexit
import os
import re
import signal
import subprocess
import sys
from typing import Self

BUCKET = "lakes"
KEYS = {
    "AWS_ACCESS_KEY_ID": "tester",
    "AWS_SECRET_ACCESS_KEY": "no-plan-may-say-this",
    "AWS_DEFAULT_REGION": "eu-west-1",
}


class S3:
    def __init__(self) -> None:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**os.environ, **KEYS}
        )
        atexit.register(self.stop)
        assert self._process.stderr is not None
        said = []
        for line in self._process.stderr:
            said.append(line)
            if found := re.search(r"Running on (http://127\.0\.0\.1:\d+)", line):
                self.address = found[1]
                break
        else:
            raise RuntimeError(f"moto did not start: {''.join(said)}")
        # What it says of each request is not read, and must not stop it.
        self._drain = subprocess.Popen(["cat"], stdin=self._process.stderr, stdout=subprocess.DEVNULL)
        self._process.stderr.close()

    def __enter__(self) -> Self:
        import boto3

        client = boto3.client(
            "s3",
            endpoint_url=self.address,
            aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
            region_name=KEYS["AWS_DEFAULT_REGION"],
        )
        client.create_bucket(
            Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": KEYS["AWS_DEFAULT_REGION"]}
        )
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def stop(self) -> None:
        atexit.unregister(self.stop)
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(60)
        self._drain.wait(60)
