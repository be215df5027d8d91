package rmqspark;

import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition;
import org.apache.spark.sql.internal.connector.SupportsMetadata;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

import scala.collection.immutable.Map$;
import scala.jdk.javaapi.CollectionConverters;

/** One scan: Spark's scan of a Python source, over a PythonDataSourceV2 that no other scan has. */
final class StoreScan implements SupportsReportStatistics, SupportsMetadata {
  /** What rmq_spark/reader.py writes into the first partition, whose pickle holds it as plain text. */
  private static final Pattern ESTIMATE = Pattern.compile("rmqspark\\.estimate rows=(\\d+) bytes=(\\d+);");

  private final String name;
  private final StructType columns;
  private final List<Predicate> pushed;
  private final Integer limit;
  private final Scan python;

  StoreScan(String name, StructType columns, CaseInsensitiveStringMap options, List<Predicate> pushed, Integer limit) {
    this.name = name;
    this.columns = columns;
    this.pushed = pushed;
    this.limit = limit;
    this.python = Format.table(Format.python(), columns, options).newScanBuilder(options).build();
  }

  @Override
  public StructType readSchema() {
    return columns;
  }

  @Override
  public Batch toBatch() {
    return python.toBatch();
  }

  @Override
  public MicroBatchStream toMicroBatchStream(String checkpointLocation) {
    return python.toMicroBatchStream(checkpointLocation);
  }

  /** Spark's batches of a Python source give rows. To say so keeps EXPLAIN from planning the scan in Python. */
  @Override
  public ColumnarSupportMode columnarSupportMode() {
    return ColumnarSupportMode.UNSUPPORTED;
  }

  @Override
  public CustomMetric[] supportedCustomMetrics() {
    return python.supportedCustomMetrics();
  }

  @Override
  public CustomTaskMetric[] reportDriverMetrics() {
    return python.reportDriverMetrics();
  }

  /** From the plan that Python made. Spark keeps that plan and reads by it, so that asking for it starts no further Python. */
  @Override
  public Statistics estimateStatistics() {
    for (InputPartition partition : python.toBatch().planInputPartitions()) {
      byte[] pickled = ((PythonInputPartition) partition).pickedPartition();
      Matcher found = ESTIMATE.matcher(new String(pickled, StandardCharsets.ISO_8859_1));
      if (found.find()) {
        return estimate(OptionalLong.of(Long.parseLong(found.group(1))), OptionalLong.of(Long.parseLong(found.group(2))));
      }
      break; // it is in the first, or nowhere
    }
    return estimate(OptionalLong.empty(), OptionalLong.empty());
  }

  private static Statistics estimate(OptionalLong rows, OptionalLong bytes) {
    return new Statistics() {
      @Override
      public OptionalLong numRows() {
        return rows;
      }

      @Override
      public OptionalLong sizeInBytes() {
        return bytes;
      }
    };
  }

  /** For EXPLAIN. */
  @Override
  public String description() {
    return String.format("%s (bridge) PushedFilters: %s, PushedLimit: %s", name, filters(), limit == null ? "none" : limit);
  }

  /** For EXPLAIN FORMATTED; the map has to be Scala's. */
  @Override
  public scala.collection.immutable.Map<String, String> getMetaData() {
    Map<String, String> said = new LinkedHashMap<>();
    said.put("PushedFilters", filters());
    if (limit != null) {
      said.put("PushedLimit", limit.toString());
    }
    said.put("ReadSchema", columns.simpleString());
    said.put("Source", name + " (bridge)");
    return Map$.MODULE$.from(CollectionConverters.asScala(said));
  }

  private String filters() {
    return pushed.stream().map(StoreScan::shown).collect(Collectors.joining(", ", "[", "]"));
  }

  private static String shown(Predicate filter) {
    String text = filter.toString();
    return text.length() <= 200 ? text : text.substring(0, 200) + "...";
  }
}
