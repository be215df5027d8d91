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
 * <p>Counted are the joining of the properties, putMessage, and the dispatch to queues and index. Not counted: the making of the
 * messages, 10,000 ahead, the start and the shutdown. What is put is what GenerateStore puts, less its times. Answers with a line
 * of JSON: the seconds, those of the processor in all threads, and how many entries the queues have.
 */
public class PutStore {
  static final int AHEAD = 10_000;
  static final int TOPICS = 8;
  static final int QUEUES = 8;

  public static void main(String[] args) throws Exception {
    OperatingSystemMXBean process = ManagementFactory.getPlatformMXBean(OperatingSystemMXBean.class);
    InetSocketAddress host = new InetSocketAddress(InetAddress.getByName("127.0.0.1"), 10911);
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
        MessageExtBrokerInner[] made = new MessageExtBrokerInner[Math.min(AHEAD, messages - first)];
        for (int i = 0; i < made.length; i++) {
          made[i] = message(first + i, messages, pool, length, host);
        }
        long busy = process.getProcessCpuTime();
        long start = System.nanoTime();
        for (MessageExtBrokerInner message : made) {
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

  static MessageExtBrokerInner message(int i, int messages, byte[] pool, int length, InetSocketAddress host) {
    byte[] body = new byte[length];
    System.arraycopy(pool, (int) (i * 7L % (pool.length - length)), body, 0, length);
    MessageExtBrokerInner message = new MessageExtBrokerInner();
    message.setTopic("topic-" + i % TOPICS);
    message.setQueueId(i / TOPICS % QUEUES);
    message.setBody(body);
    message.setBornTimestamp(System.currentTimeMillis());
    message.setBornHost(host);
    message.setStoreHost(host);
    MessageAccessor.putProperty(message, "UNIQ_KEY", String.format("7F000001000018B4AAC2%012X", i));
    MessageAccessor.putProperty(message, "CLUSTER", "DefaultCluster");
    message.setKeys("order-" + i % (messages / 2));
    message.setTags("Tag" + i % 4);
    return message;
  }
}
