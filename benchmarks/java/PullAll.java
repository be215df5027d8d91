import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Pulls all messages of topics from a live broker, once for each line on standard input, and answers each with one line of JSON.
 * Arguments: name server, threads, topics. Each thread takes queue after queue, and asks for as many messages as the broker gives.
 */
public class PullAll {
  static final int MOST = 1024;

  public static void main(String[] args) throws Exception {
    DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("bench");
    consumer.setNamesrvAddr(args[0]);
    consumer.start();
    int threads = Integer.parseInt(args[1]);
    List<MessageQueue> queues = new ArrayList<>();
    for (int i = 2; i < args.length; i++) {
      queues.addAll(consumer.fetchSubscribeMessageQueues(args[i]));
    }
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      long start = System.nanoTime();
      Queue<MessageQueue> left = new ConcurrentLinkedQueue<>(queues);
      ExecutorService pool = Executors.newFixedThreadPool(threads);
      List<Future<long[]>> parts = new ArrayList<>();
      for (int i = 0; i < threads; i++) {
        parts.add(pool.submit(() -> pull(consumer, left)));
      }
      long rows = 0;
      long bytes = 0;
      for (Future<long[]> part : parts) {
        rows += part.get()[0];
        bytes += part.get()[1];
      }
      pool.shutdown();
      double seconds = (System.nanoTime() - start) / 1e9;
      System.out.printf(Locale.ROOT, "{\"rows\": %d, \"bytes\": %d, \"seconds\": %.6f}%n", rows, bytes, seconds);
    }
    System.exit(0);
  }

  static long[] pull(DefaultMQPullConsumer consumer, Queue<MessageQueue> left) throws Exception {
    long[] count = new long[2];
    for (MessageQueue queue = left.poll(); queue != null; queue = left.poll()) {
      long offset = consumer.minOffset(queue);
      long end = consumer.maxOffset(queue);
      while (offset < end) {
        PullResult result = consumer.pull(queue, "*", offset, MOST);
        if (result.getPullStatus() == PullStatus.FOUND) {
          for (MessageExt message : result.getMsgFoundList()) {
            count[0]++;
            count[1] += message.getStoreSize();
          }
        }
        offset = result.getNextBeginOffset();
      }
    }
    return count;
  }
}
