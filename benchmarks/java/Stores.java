import java.io.File;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** RocketMQ's own store as the measured programs open it: all defaults but what a broker around it would do. */
class Stores {
  static DefaultMessageStore open(String folder) throws Exception {
    MessageStoreConfig config = new MessageStoreConfig();
    config.setStorePathRootDir(folder);
    config.setStorePathCommitLog(folder + "/commitlog");
    config.setHaListenPort(0);
    config.setTimerWheelEnable(false);
    config.setDiskMaxUsedSpaceRatio(99);
    config.setOsPageCacheBusyTimeOutMills(60_000);
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

  /** How many entries its queues have. */
  static long entries(DefaultMessageStore store, String folder) throws Exception {
    long entries = 0;
    for (File topic : new File(folder, "consumequeue").listFiles()) {
      for (File queue : topic.listFiles()) {
        entries += store.getMaxOffsetInQueue(topic.getName(), Integer.parseInt(queue.getName()));
      }
    }
    return entries;
  }
}
