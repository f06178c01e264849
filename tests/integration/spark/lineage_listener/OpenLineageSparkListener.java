// The source of openlineage-spark-stand-in.jar, which is beside it so that tests need a Java runtime only. A listener
// with the class name and the constructor of OpenLineage's. It writes the parent that it was given into a file when
// an application starts. Rebuild with:
//   javac --release 17 -cp "$SPARK_HOME/jars/*" -d classes OpenLineageSparkListener.java
//   jar --create --date=2020-01-01T00:00:00Z --file openlineage-spark-stand-in.jar -C classes .
package io.openlineage.spark.agent;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import org.apache.spark.SparkConf;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerApplicationStart;

public class OpenLineageSparkListener extends SparkListener {
  private static final String PARENT = "spark.openlineage.parent";

  private final SparkConf conf;

  public OpenLineageSparkListener(SparkConf conf) {
    this.conf = conf;
  }

  @Override
  public void onApplicationStart(SparkListenerApplicationStart start) {
    String line = String.join(
        "\t",
        conf.get(PARENT + "JobNamespace"),
        conf.get(PARENT + "JobName"),
        conf.get(PARENT + "RunId"));
    try {
      Files.writeString(
          Path.of(conf.get("spark.standIn.file")), line + "\n", StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }
}
