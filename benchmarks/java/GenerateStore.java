import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.HashMap;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * Writes a store with RocketMQ's own DefaultMessageStore, in this process.
 *
 * <p>Arguments: folder, messages, bytes per body, then any of fileSize=, slots=, entries= (of commitlog and index files) and
 * shape=varied. Message i is in topic-(i % 8), queue i / 8 % 8; an order has two messages of one topic: its key is
 * order-(i % (messages / 2)). Stored times begin at FIRST_TIME and are STEP ms apart. Bodies differ from each other, or a columnar
 * copy of them would be a dictionary. With shape=varied, bodies are half as long to half as long again, and the properties
 * differ in number, order and length.
 */
public class GenerateStore {
  static final long FIRST_TIME = 1_700_000_000_000L;
  static final long STEP = 100;
  static final int TOPICS = 8;
  static final int QUEUES = 8;

  public static void main(String[] args) throws Exception {
    String folder = args[0];
    int messages = Integer.parseInt(args[1]);
    int bodyLength = Integer.parseInt(args[2]);
    Map<String, String> more = new HashMap<>();
    for (int i = 3; i < args.length; i++) {
      String[] pair = args[i].split("=", 2);
      more.put(pair[0], pair[1]);
    }
    DefaultMessageStore store = open(folder, more);
    long start = System.nanoTime();
    fill(store, messages, bodyLength, "varied".equals(more.get("shape")));
    while (store.dispatchBehindBytes() > 0) {
      Thread.sleep(1);
    }
    store.flush();
    System.out.printf("{\"messages\": %d, \"seconds\": %.3f}%n", messages, (System.nanoTime() - start) / 1e9);
    store.shutdown();
    System.exit(0);
  }

  static DefaultMessageStore open(String folder, Map<String, String> more) throws Exception {
    MessageStoreConfig config = new MessageStoreConfig();
    config.setStorePathRootDir(folder);
    config.setStorePathCommitLog(folder + "/commitlog");
    config.setTimerWheelEnable(false);
    config.setDiskMaxUsedSpaceRatio(99);
    config.setOsPageCacheBusyTimeOutMills(60_000);
    config.setCleanResourceInterval(1_000_000_000);
    // such a store keeps the times and queue offsets that it is given: the times are why
    config.setDuplicationEnable(true);
    if (more.containsKey("fileSize")) {
      config.setMappedFileSizeCommitLog(Integer.parseInt(more.get("fileSize")));
    }
    if (more.containsKey("slots")) {
      config.setMaxHashSlotNum(Integer.parseInt(more.get("slots")));
      config.setMaxIndexNum(Integer.parseInt(more.get("entries")));
    }
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

  static void fill(DefaultMessageStore store, int messages, int bodyLength, boolean varied) throws Exception {
    Random random = new Random(messages + bodyLength);
    byte[] pool = new byte[1 << 23];
    random.nextBytes(pool);
    InetSocketAddress born = new InetSocketAddress(InetAddress.getByName("127.0.0.1"), 53210);
    InetSocketAddress stored = new InetSocketAddress(InetAddress.getByName("127.0.0.1"), 10911);
    for (int i = 0; i < messages; i++) {
      int length = varied ? bodyLength / 2 + random.nextInt(bodyLength + 1) : bodyLength;
      byte[] body = new byte[length];
      System.arraycopy(pool, (int) (i * 7L % (pool.length - 2 * bodyLength)), body, 0, length);
      MessageExtBrokerInner message = new MessageExtBrokerInner();
      message.setTopic("topic-" + i % TOPICS);
      message.setQueueId(i / TOPICS % QUEUES);
      message.setQueueOffset(i / (TOPICS * QUEUES));
      message.setBody(body);
      message.setStoreTimestamp(FIRST_TIME + STEP * i);
      message.setBornTimestamp(FIRST_TIME + STEP * i - 2);
      message.setBornHost(born);
      message.setStoreHost(stored);
      MessageAccessor.putProperty(message, "UNIQ_KEY", String.format("7F000001000018B4AAC2%012X", i));
      MessageAccessor.putProperty(message, "CLUSTER", "DefaultCluster");
      message.setKeys("order-" + i % (messages / 2));
      if (!varied || random.nextInt(4) > 0) {
        message.setTags("Tag" + random.nextInt(varied ? 20 : 4));
      }
      for (int more = varied ? random.nextInt(4) : 0; more > 0; more--) {
        message.putUserProperty("attribute" + random.nextInt(8), Integer.toString(random.nextInt(), 36));
      }
      message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
      PutMessageResult result = store.putMessage(message);
      while (!result.isOk()) { // a full page cache, or a file that is still being made
        Thread.sleep(10);
        result = store.putMessage(message);
      }
      if (i % 1000 == 0 || i == messages - 1) { // what is confirmed goes to the queues and the index
        store.setConfirmOffset(store.getMaxPhyOffset());
      }
    }
  }
}
