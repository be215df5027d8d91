package rmqspark;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * What a DataFrame, a view or a catalog table stands for: a format, a schema, and the options that it was made with.
 *
 * <p>A scan or a write of a catalog table comes with its own options only (those of SELECT ... WITH (...)): the table's are put
 * below them here. For the Python source alone nobody does that.
 */
final class StoreTable implements SupportsRead, SupportsWrite {
  private final Format format;
  private final StructType schema;
  private final CaseInsensitiveStringMap options;

  StoreTable(Format format, StructType schema, CaseInsensitiveStringMap options) {
    this.format = format;
    this.schema = schema;
    this.options = options;
  }

  @Override
  public String name() {
    return format.shortName();
  }

  @Override
  @SuppressWarnings("deprecation") // columns(), which replaces it, is made from it
  public StructType schema() {
    return schema;
  }

  @Override
  public Map<String, String> properties() {
    return options;
  }

  @Override
  public Set<TableCapability> capabilities() {
    return Format.table(Format.python(), schema, options).capabilities();
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap more) {
    return new StoreScanBuilder(format, schema, with(more));
  }

  @Override
  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    Map<String, Object> own = Map.of("options", new ArrayList<>(info.options().keySet()));
    CaseInsensitiveStringMap told = format.told(with(info.options()), own);
    LogicalWriteInfo all =
        new LogicalWriteInfo() {
          @Override
          public CaseInsensitiveStringMap options() {
            return told;
          }

          @Override
          public String queryId() {
            return info.queryId();
          }

          @Override
          public StructType schema() {
            return info.schema();
          }

          @Override
          public Optional<StructType> rowIdSchema() {
            return info.rowIdSchema();
          }

          @Override
          public Optional<StructType> metadataSchema() {
            return info.metadataSchema();
          }
        };
    return Format.table(Format.python(), schema, told).newWriteBuilder(all);
  }

  private CaseInsensitiveStringMap with(CaseInsensitiveStringMap more) {
    Map<String, String> all = new LinkedHashMap<>(options);
    all.putAll(more);
    return new CaseInsensitiveStringMap(all);
  }
}
