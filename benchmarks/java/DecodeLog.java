import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.util.Arrays;
import java.util.Locale;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Decodes all messages of a commitlog with RocketMQ's MessageDecoder on one thread, once for each line on standard input, and
 * answers each with one line of JSON. Argument: the commitlog folder. The files are mapped, as the broker does it.
 */
public class DecodeLog {
  static final int BLANK_MAGIC = -875286124;

  public static void main(String[] args) throws Exception {
    File[] files = new File(args[0]).listFiles();
    Arrays.sort(files);
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    ThreadMXBean threads = ManagementFactory.getThreadMXBean();
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      long cpu = threads.getCurrentThreadCpuTime(); // of this thread alone: collecting garbage and compiling are not in it
      long start = System.nanoTime();
      long[] count = new long[3]; // messages, bytes, and a sum that keeps the decoder's work from being optimised away
      for (File file : files) {
        decode(file, count);
      }
      double seconds = (System.nanoTime() - start) / 1e9;
      double busy = (threads.getCurrentThreadCpuTime() - cpu) / 1e9;
      System.out.printf(Locale.ROOT, "{\"rows\": %d, \"bytes\": %d, \"seconds\": %.6f, \"cpu\": %.6f, \"sum\": %d}%n",
          count[0], count[1], seconds, busy, count[2]);
    }
  }

  static void decode(File file, long[] count) throws Exception {
    try (FileChannel channel = FileChannel.open(file.toPath())) {
      ByteBuffer log = channel.map(FileChannel.MapMode.READ_ONLY, 0, file.length());
      int position = 0;
      while (position + 8 <= file.length()) {
        int size = log.getInt(position);
        if (size <= 0 || log.getInt(position + 4) == BLANK_MAGIC) {
          return;
        }
        MessageExt message = MessageDecoder.decode(log.slice(position, size), true, true);
        if (message == null) {
          throw new IllegalStateException(file + " has no message at " + position);
        }
        count[0]++;
        count[1] += size;
        count[2] += message.getBody().length + message.getQueueOffset() + message.getProperties().size();
        position += size;
      }
    }
  }
}
