import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.util.Locale;
import org.apache.rocketmq.store.DefaultMessageStore;

/**
 * Opens stores that have only their commitlog with RocketMQ's own DefaultMessageStore, whose recovery builds queues and index; one
 * for each line on standard input, a folder. Answers with a line of JSON: the seconds until all is dispatched and flushed (not
 * those of the shutdown), and how many entries the queues have.
 */
public class RebuildStore {
  public static void main(String[] args) throws Exception {
    OperatingSystemMXBean process = ManagementFactory.getPlatformMXBean(OperatingSystemMXBean.class);
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    for (String folder = in.readLine(); folder != null; folder = in.readLine()) {
      long cpu = process.getProcessCpuTime(); // of all threads: some of them are the compiler's and the collector's
      long start = System.nanoTime();
      DefaultMessageStore store = Stores.open(folder);
      while (store.dispatchBehindBytes() > 0) {
        Thread.sleep(1);
      }
      store.flush();
      double seconds = (System.nanoTime() - start) / 1e9;
      double busy = (process.getProcessCpuTime() - cpu) / 1e9;
      long entries = Stores.entries(store, folder);
      store.shutdown();
      System.out.printf(Locale.ROOT, "{\"rows\": %d, \"seconds\": %.6f, \"cpu\": %.6f}%n", entries, seconds, busy);
    }
    System.exit(0);
  }
}
