package rmqspark;

import java.util.LinkedHashMap;
import java.util.Map;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A format's name in Spark, and the way to the Python source behind it.
 *
 * <p>Spark finds the four classes at the end by META-INF/services, the list of what a jar offers, and prefers them to a Python
 * source of the same name. They read and write nothing: all goes to the Python source {@link #PYTHON} (rmq_spark/source.py),
 * which is told in one more option, {@link #OPTION}, as JSON (rmq_spark/pushed.py reads it), what Spark wants of a scan.
 *
 * <p>Why there is Java at all: Spark's own object for a Python source, PythonDataSourceV2, keeps the partitions of its last
 * plan. All scans of a DataFrame, view or table share one such object, so that a filtered scan leaves its partitions to the next
 * one (SPARK-58551). Here every scan gets an object of its own, from {@link #python}.
 */
public abstract class Format implements TableProvider, DataSourceRegister {
  /** The Python source's name: registered by rmq_spark.register, or by the module pyspark_rocketmq_bridge. */
  static final String PYTHON = "rocketmq-bridge";

  /** The option that is ours; its value is a JSON object. */
  static final String OPTION = "rmqspark.pushed";

  private static final ObjectMapper JSON = new ObjectMapper();

  private final String name;

  Format(String name) {
    this.name = name;
  }

  @Override
  public String shortName() {
    return name;
  }

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return python().inferSchema(told(given(options), Map.of()));
  }

  @Override
  public boolean supportsExternalMetadata() {
    return true; // .schema(...), and a catalog table's own schema, which saves asking Python for it
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    return new StoreTable(this, schema, given(new CaseInsensitiveStringMap(properties)));
  }

  /**
   * The options that a user gave. What the catalog knows of a table comes here as one map: its options, each of them twice (as
   * NAME and as option.NAME, but for the path), and beside them its owner, its comment and other properties.
   */
  private CaseInsensitiveStringMap given(CaseInsensitiveStringMap all) {
    if (!name.equalsIgnoreCase(all.get("provider")) || !all.containsKey("owner")) {
      return all; // no catalog table
    }
    Map<String, String> options = new LinkedHashMap<>();
    all.forEach(
        (key, value) -> {
          if (key.equals("path") || all.containsKey("option." + key)) {
            options.put(key, value);
          }
        });
    return new CaseInsensitiveStringMap(options);
  }

  /** Spark's support for the Python source, with nothing in it yet. */
  static PythonDataSourceV2 python() {
    PythonDataSourceV2 source = new PythonDataSourceV2();
    source.setShortName(PYTHON);
    return source;
  }

  /** The table that Spark would make of the Python source; it can be read and written. */
  static <T extends SupportsRead & SupportsWrite> T table(
      PythonDataSourceV2 python, StructType schema, CaseInsensitiveStringMap options) {
    @SuppressWarnings("unchecked")
    T table = (T) python.getTable(schema, new Transform[0], options);
    return table;
  }

  /** The options together with our own, which says {@code more} and which format this is. */
  CaseInsensitiveStringMap told(CaseInsensitiveStringMap options, Map<String, Object> more) {
    Map<String, Object> said = new LinkedHashMap<>(more);
    said.put("format", name);
    Map<String, String> all = new LinkedHashMap<>(options);
    try {
      all.put(OPTION, JSON.writeValueAsString(said));
    } catch (JsonProcessingException e) {
      throw new IllegalStateException(e); // texts, numbers and lists always have a JSON
    }
    return new CaseInsensitiveStringMap(all);
  }

  /** See rmq_spark.source.StoreSource. */
  public static final class Store extends Format {
    public Store() {
      super("rocketmq-store");
    }
  }

  /** See rmq_spark.source.CommitLogSource. */
  public static final class CommitLog extends Format {
    public CommitLog() {
      super("rocketmq-commitlog");
    }
  }

  /** See rmq_spark.source.ConsumeQueueSource. */
  public static final class ConsumeQueue extends Format {
    public ConsumeQueue() {
      super("rocketmq-consumequeue");
    }
  }

  /** See rmq_spark.source.IndexFileSource. */
  public static final class IndexFile extends Format {
    public IndexFile() {
      super("rocketmq-indexfile");
    }
  }
}
