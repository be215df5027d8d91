package rmqspark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Collects what Spark's optimizer wants of one scan: filters first, then a limit, then columns; then it calls build. */
final class StoreScanBuilder
    implements SupportsPushDownV2Filters, SupportsPushDownLimit, SupportsPushDownRequiredColumns {
  private final Format format;
  private final StructType schema;
  private final CaseInsensitiveStringMap options;
  private final List<Predicate> pushed = new ArrayList<>();
  private final List<List<Object>> where = new ArrayList<>();
  private StructType columns;
  private Integer limit;

  StoreScanBuilder(Format format, StructType schema, CaseInsensitiveStringMap options) {
    this.format = format;
    this.schema = schema;
    this.columns = schema;
    this.options = options;
  }

  /** Takes what the planner can use, and gives all of it back: Spark evaluates every filter again, by its own rules. */
  @Override
  public Predicate[] pushPredicates(Predicate[] predicates) {
    for (Predicate predicate : predicates) {
      List<Object> condition = Condition.of(predicate);
      if (condition != null) {
        pushed.add(predicate);
        where.add(condition);
      }
    }
    return predicates;
  }

  @Override
  public Predicate[] pushedPredicates() {
    return pushed.toArray(new Predicate[0]);
  }

  /** Spark asks this only where it has no filter of its own above the scan. */
  @Override
  public boolean pushLimit(int rows) {
    limit = rows;
    return true;
  }

  /** Each partition keeps to the limit, and Spark to the limit of all of them together. */
  @Override
  public boolean isPartiallyPushed() {
    return true;
  }

  @Override
  public void pruneColumns(StructType required) {
    List<String> names = Arrays.asList(required.fieldNames()); // by name: `required` may hold but a part of a struct
    columns = new StructType(Arrays.stream(schema.fields()).filter(f -> names.contains(f.name())).toArray(StructField[]::new));
  }

  @Override
  public Scan build() {
    Map<String, Object> more = new LinkedHashMap<>();
    more.put("columns", columns.fieldNames());
    more.put("relation", schema.fieldNames());
    if (!where.isEmpty()) {
      more.put("where", where);
    }
    if (limit != null) {
      more.put("limit", limit);
    }
    return new StoreScan(format.shortName(), columns, format.told(options, more), pushed, limit);
  }
}
