"""The classes of Hadoop in the driver's JVM through which files are reached."""

from __future__ import annotations

from typing import Any


class HadoopClasses:
    """Classes and objects that ``HadoopFiles`` uses, for one session. All methods raise what py4j raises.

    Looking them up takes about a hundred calls into the JVM.
    """

    def __init__(self, spark: Any) -> None:
        jvm = spark._jvm
        self.path = jvm.org.apache.hadoop.fs.Path
        self.digest = jvm.java.security.MessageDigest
        self.digest_stream = jvm.java.security.DigestInputStream
        self.io = jvm.org.apache.hadoop.io.IOUtils
        self.text = jvm.org.apache.commons.io.IOUtils
        self.discard = jvm.java.io.OutputStream.nullOutputStream
        self.zip = jvm.java.util.zip.ZipInputStream
        self.private = jvm.org.apache.hadoop.fs.permission.FsPermission("700")
        self._manager = jvm.org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
        self._gateway = spark.sparkContext._gateway
        self._configuration = spark._jsparkSession.sessionState().newHadoopConf()
        default = jvm.org.apache.hadoop.fs.FileSystem.getDefaultUri(self._configuration)
        self.paths_are_local = str(default.getScheme()) == "file"

    def reach(self, location: str) -> tuple[Any, Any]:
        """Return the path and its file system."""
        path = self.path(location)
        system = path.getFileSystem(self._configuration)
        # Bypass Hadoop's hidden checksum files: a copy made by other means would leave stale ones behind.
        return path, system.getRawFileSystem() if self._is_checksummed(system) else system

    def atomic_stream(self, location: str, *, overwrite: bool) -> Any:
        """Return a stream to a file that appears when the stream is closed, as Spark writes its checkpoints."""
        path = self.path(location)
        return self._manager.create(path.getParent(), self._configuration).createAtomic(path, overwrite)

    def _is_checksummed(self, system: Any) -> bool:
        from py4j.java_gateway import is_instance_of

        return bool(is_instance_of(self._gateway, system, "org.apache.hadoop.fs.ChecksumFileSystem"))
