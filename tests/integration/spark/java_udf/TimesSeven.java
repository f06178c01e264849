// The source of times-seven.jar, which stands beside it so that tests need a Java runtime only. Rebuild with:
//   javac --release 17 -cp "$SPARK_HOME/jars/*" -d classes TimesSeven.java
//   jar --create --date=2020-01-01T00:00:00Z --file times-seven.jar -C classes .
package emberkeep.test;

import org.apache.spark.sql.api.java.UDF1;

public class TimesSeven implements UDF1<Long, Long> {
  @Override
  public Long call(Long number) {
    return number == null ? null : 7 * number;
  }
}
