package rmqspark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;

import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * A filter of Spark's as the planner's condition: [column, op, value], ready to be JSON. A time is microseconds since 1970.
 *
 * <p>A condition may let through more rows than the filter, never fewer.
 */
final class Condition {
  /** The columns that lead to less to read (store_core/planner.py, store_core/tableplans.py). */
  private static final Set<String> COLUMNS =
      Set.of(
          "topic", "queueId", "queueOffset", "commitLogOffset", "storeTimestamp", "keys", "uniqKey", "offsetMsgId", "tags",
          "key", "indexType", "tagsCode");

  /** Spark's names for the comparisons, and what each is with its two sides exchanged. */
  private static final Map<String, String> TURNED = Map.of("=", "=", "<=>", "<=>", "<", ">", "<=", ">=", ">", "<", ">=", "<=");

  private Condition() {}

  /** The condition, or null where the planner has no use for the filter. */
  static List<Object> of(Predicate filter) {
    Expression[] parts = filter.children();
    if (filter.name().equals("IN") && parts.length > 0) {
      String column = column(parts[0]);
      List<Object> values = new ArrayList<>();
      for (Expression part : Arrays.asList(parts).subList(1, parts.length)) {
        if (part instanceof Literal<?> literal && literal.value() == null) {
          continue; // x IN (1, NULL) is true where x IN (1) is, and otherwise null
        }
        values.add(value(part));
      }
      return column == null || values.contains(null) ? null : List.of(column, "in", values);
    }
    if (filter.name().equals("OR") && parts.length == 2 && parts[0] instanceof Predicate a && parts[1] instanceof Predicate b) {
      return either(of(a), of(b));
    }
    if (!TURNED.containsKey(filter.name()) || parts.length != 2) {
      return null;
    }
    boolean turned = parts[0] instanceof Literal;
    String column = column(parts[turned ? 1 : 0]);
    Object value = value(parts[turned ? 0 : 1]);
    String op = turned ? TURNED.get(filter.name()) : filter.name();
    return column == null || value == null ? null : List.of(column, op.equals("<=>") ? "=" : op, value);
  }

  /** x = 1 OR x IN (2, 3) is x IN (1, 2, 3); null for any other OR. */
  private static List<Object> either(List<Object> one, List<Object> other) {
    if (one == null || other == null || !one.get(0).equals(other.get(0))) {
      return null;
    }
    List<Object> values = new ArrayList<>();
    for (List<Object> each : List.of(one, other)) {
      if (each.get(1).equals("=")) {
        values.add(each.get(2));
      } else if (each.get(1).equals("in")) {
        values.addAll((List<?>) each.get(2));
      } else {
        return null;
      }
    }
    return List.of(one.get(0), "in", values);
  }

  private static String column(Expression part) {
    if (part instanceof NamedReference reference && reference.fieldNames().length == 1) {
      String name = reference.fieldNames()[0];
      return COLUMNS.contains(name) ? name : null;
    }
    return null;
  }

  private static Object value(Expression part) {
    if (!(part instanceof Literal<?> literal) || literal.value() == null) {
      return null;
    }
    Object value = literal.value();
    if (literal.dataType() instanceof StringType && value instanceof UTF8String text) {
      String plain = text.toString();
      return UTF8String.fromString(plain).equals(text) ? plain : null; // bytes that are no UTF-8 have no JSON
    }
    boolean whole = literal.dataType() instanceof LongType || literal.dataType() instanceof IntegerType;
    return whole || literal.dataType() instanceof TimestampType ? value : null;
  }
}
