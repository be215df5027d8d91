import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.util.Locale;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

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
      DefaultMessageStore store = open(folder);
      while (store.dispatchBehindBytes() > 0) {
        Thread.sleep(1);
      }
      store.flush();
      double seconds = (System.nanoTime() - start) / 1e9;
      double busy = (process.getProcessCpuTime() - cpu) / 1e9;
      long entries = 0;
      for (File topic : new File(folder, "consumequeue").listFiles()) {
        for (File queue : topic.listFiles()) {
          entries += store.getMaxOffsetInQueue(topic.getName(), Integer.parseInt(queue.getName()));
        }
      }
      store.shutdown();
      System.out.printf(Locale.ROOT, "{\"rows\": %d, \"seconds\": %.6f, \"cpu\": %.6f}%n", entries, seconds, busy);
    }
    System.exit(0);
  }

  static DefaultMessageStore open(String folder) throws Exception {
    MessageStoreConfig config = new MessageStoreConfig();
    config.setStorePathRootDir(folder);
    config.setStorePathCommitLog(folder + "/commitlog");
    config.setHaListenPort(0);
    config.setTimerWheelEnable(false);
    config.setDiskMaxUsedSpaceRatio(99);
    config.setCleanResourceInterval(1_000_000_000);
    BrokerConfig broker = new BrokerConfig();
    broker.setBrokerName("broker-a");
    DefaultMessageStore store = new DefaultMessageStore(config, new BrokerStatsManager("bench", false),
        (topic, queue, offset, tags, time, bits, properties) -> { }, broker, new ConcurrentHashMap<>());
    if (!store.load()) {
      throw new IllegalStateException(folder + " can't be loaded");
    }
    store.start();
    return store;
  }
}
