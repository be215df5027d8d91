import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.Locale;
import java.util.Random;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;

/**
 * Writes stores with RocketMQ's own DefaultMessageStore: one for each line on standard input, "messages bodyLength folder".
 *
 * <p>Counted are the making of the message out of body, key, tag and id, putMessage, and the dispatch to queues and index. Not
 * counted: the making of these four, 10,000 ahead, the start and the shutdown. What is put is what GenerateStore puts, less its
 * times. Answers with a line of JSON: the seconds, those of the processor in all threads, and how many entries the queues have.
 */
public class PutStore {
  static final int AHEAD = 10_000;
  static final String[] TOPICS = new String[8];
  static final String[] TAGS = {"Tag0", "Tag1", "Tag2", "Tag3"};
  static final int QUEUES = 8;

  public static void main(String[] args) throws Exception {
    OperatingSystemMXBean process = ManagementFactory.getPlatformMXBean(OperatingSystemMXBean.class);
    InetSocketAddress host = new InetSocketAddress(InetAddress.getByName("127.0.0.1"), 10911);
    for (int i = 0; i < TOPICS.length; i++) {
      TOPICS[i] = "topic-" + i;
    }
    byte[] pool = new byte[1 << 23];
    new Random(1).nextBytes(pool);
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String[] asked = line.split(" ", 3);
      int messages = Integer.parseInt(asked[0]);
      int length = Integer.parseInt(asked[1]);
      DefaultMessageStore store = Stores.open(asked[2]);
      long nanos = 0;
      long cpu = 0;
      for (int first = 0; first < messages; first += AHEAD) {
        int count = Math.min(AHEAD, messages - first);
        byte[][] bodies = new byte[count][length];
        String[] keys = new String[count];
        String[] ids = new String[count];
        for (int i = 0; i < count; i++) {
          System.arraycopy(pool, (int) ((first + i) * 7L % (pool.length - length)), bodies[i], 0, length);
          keys[i] = "order-" + (first + i) % (messages / 2);
          ids[i] = String.format("7F000001000018B4AAC2%012X", first + i);
        }
        long busy = process.getProcessCpuTime();
        long start = System.nanoTime();
        for (int i = 0; i < count; i++) {
          MessageExtBrokerInner message = new MessageExtBrokerInner();
          message.setTopic(TOPICS[(first + i) % TOPICS.length]);
          message.setQueueId((first + i) / TOPICS.length % QUEUES);
          message.setBody(bodies[i]);
          message.setBornTimestamp(System.currentTimeMillis());
          message.setBornHost(host);
          message.setStoreHost(host);
          MessageAccessor.putProperty(message, "UNIQ_KEY", ids[i]);
          MessageAccessor.putProperty(message, "CLUSTER", "DefaultCluster");
          message.setKeys(keys[i]);
          message.setTags(TAGS[i % TAGS.length]);
          message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
          while (!store.putMessage(message).isOk()) { // a full page cache, or a file that is still being made
            Thread.sleep(1);
          }
        }
        while (store.dispatchBehindBytes() > 0) {
          Thread.onSpinWait();
        }
        nanos += System.nanoTime() - start;
        cpu += process.getProcessCpuTime() - busy;
      }
      store.flush();
      long entries = Stores.entries(store, asked[2]);
      store.shutdown();
      System.out.printf(Locale.ROOT, "{\"rows\": %d, \"seconds\": %.6f, \"cpu\": %.6f}%n", entries, nanos / 1e9, cpu / 1e9);
    }
    System.exit(0);
  }
}
