"""The environment of tests that start a JVM: half of a short test is the JVM loading the classes of Spark.

``python -m tests.spark.starting`` writes an archive of the classes that a query loads (Java's class data sharing); a
JVM that starts with it needs half the time. Without the archive, or with another Java or Spark, it starts as always.
Contains no tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from zlib import crc32

from afflux.spark.session import java_home

__all__ = ["quick_start", "spark_home"]

HOME = Path(__file__).parents[2] / "build" / "spark-home"
LONGEST_S = 900.0
"Seconds in which the archive must be written: a minute of a core, of which a busy machine gives little."
OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "  # it starts sooner and runs slower: tests mostly start
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote -Xlog:disable"
)
QUERIES = """
import sys
from pyspark.sql import functions as f
from afflux.spark.session import build

spark = build("classes", **{"spark.sql.shuffle.partitions": "2"})
table, out, marks = (f"{sys.argv[1]}/{name}" for name in ("table", "out", "marks"))
rows = spark.range(1000).selectExpr("id", "timestamp_seconds(id) AS at", "CAST(id AS STRING) AS data")
rows.mapInArrow(lambda batches: batches, rows.schema).write.parquet(table)
rows.createOrReplaceTempView("rows")
spark.sql("SELECT data, count(*) AS n FROM rows GROUP BY data ORDER BY n DESC LIMIT 3").collect()
stream = spark.readStream.schema(rows.schema).parquet(table).withWatermark("at", "1 minute")
counted = stream.groupBy(f.window("at", "1 minute")).count().writeStream.format("parquet")
counted.option("checkpointLocation", marks).trigger(availableNow=True).start(out).awaitTermination()
spark.read.parquet(out).toArrow()
java = spark.sparkContext._gateway.proc
spark.stop()
java.stdin.close()  # the JVM ends, and writes the archive
java.wait()
"""
"Queries that load the classes which most tests need."


def quick_start() -> dict[str, str]:
    """The environment of a driver that starts sooner. Its JVM does not verify the classes of Spark's jars. A small JVM
    makes its command line."""
    return {
        "SPARK_HOME": spark_home(),
        "SPARK_SUBMIT_OPTS": f"{OPTIONS} -XX:SharedArchiveFile={archive()}",
        "SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }


def spark_home() -> str:
    """A home of Spark without the archive of its Python modules, so that workers import those that are installed.

    From the archive each worker compiles what it imports, for 0.5 s or more. Spark gives the worker of a streaming
    source 10 s to connect, whatever its settings are.
    """
    spec = find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    installed = Path(spec.origin).parent
    HOME.mkdir(parents=True, exist_ok=True)
    for name in ("bin", "jars", "sbin"):
        link = HOME / name
        if not link.exists() or not link.samefile(installed / name):
            fresh = HOME / f"{name}.{os.getpid()}"
            fresh.symlink_to(installed / name)
            fresh.replace(link)
    return str(HOME)


def archive() -> Path:
    """Where the archive is, for this Java and this Spark."""
    jars = Path(spark_home()) / "jars"
    made = (str(java_home().home), str(jars.resolve()), [(jar.name, jar.stat().st_mtime_ns) for jar in jars.iterdir()])
    return jars.parent / f"classes-{crc32(repr(made).encode()):08x}.jsa"


def main() -> None:
    """Write the archive, unless it is there."""
    path = archive()
    if path.exists():
        return
    for old in path.parent.glob("classes-*"):
        old.unlink()
    fresh = path.with_suffix(f".{os.getpid()}")
    options = f"{OPTIONS} -XX:ArchiveClassesAtExit={fresh}"
    environment = os.environ | {"SPARK_HOME": spark_home(), "SPARK_SUBMIT_OPTS": options}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-c", QUERIES, folder], env=environment, check=True, timeout=LONGEST_S)
    if fresh.exists():  # a Java without class data sharing writes none
        fresh.replace(path)


if __name__ == "__main__":
    main()
