import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * RocketMQ's own client, one command per line of standard input, its parts separated by tabs. Arguments: name server, broker name,
 * broker address.
 *
 * <pre>
 * ends TOPIC QUEUE                   {"minOffset", "maxOffset"}
 * pull TOPIC QUEUE                   every message of the queue from its first offset on
 * consume GROUP TOPIC COUNT SECONDS  what a new group of push consumers is given, in order; until COUNT or the time is reached
 * query TOPIC KEY BEGIN END MOST     the messages that the broker finds by key
 * unique TOPIC UNIQKEY               the message of that UNIQ_KEY, which a client takes the time to look from out of
 * view TOPIC OFFSETMSGID             the message of that id
 * send TOPIC QUEUE TAGS KEYS BODY    {"msgId", "offsetMsgId", "queueOffset"}; BODY in base64, TAGS and KEYS may be empty
 * </pre>
 *
 * Answers are lines of JSON: one for each message, and a last one with "done" (how many) or "error".
 */
public class BrokerClient {
  static final int MOST = 64;
  static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);

  static DefaultMQProducer producer;
  static DefaultMQPullConsumer consumer;
  static String nameServer;
  static String brokerName;

  public static void main(String[] args) throws Exception {
    nameServer = args[0];
    brokerName = args[1];
    producer = new DefaultMQProducer("interop-producer");
    producer.setNamesrvAddr(nameServer);
    producer.setSendMsgTimeout(20_000);
    producer.setRetryTimesWhenSendFailed(0);
    producer.start();
    consumer = new DefaultMQPullConsumer("interop-puller");
    consumer.setNamesrvAddr(nameServer);
    consumer.start();
    // A broker of 5.x makes itself known to a name server 10 seconds after its start, or, asked for its permissions, at once
    Properties permissions = new Properties();
    permissions.setProperty("brokerPermission", "6");
    producer.getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl().updateBrokerConfig(args[2], permissions, 20_000);
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      try {
        OUT.println(answer(line.split("\t", -1)));
      } catch (Exception error) {
        OUT.println("{\"error\":" + quoted(error.toString()) + "}");
      }
    }
    System.exit(0);
  }

  static String answer(String[] words) throws Exception {
    switch (words[0]) {
      case "ends": {
        MessageQueue queue = queue(words[1], words[2]);
        return "{\"done\":0,\"minOffset\":" + consumer.minOffset(queue) + ",\"maxOffset\":" + consumer.maxOffset(queue) + "}";
      }
      case "pull":
        return done(pull(queue(words[1], words[2])));
      case "consume":
        return done(consume(words[1], words[2], Integer.parseInt(words[3]), Integer.parseInt(words[4])));
      case "query":
        return done(query(words[1], words[2], Long.parseLong(words[3]), Long.parseLong(words[4]), Integer.parseInt(words[5])));
      case "unique":
        return done(List.of(producer.getDefaultMQProducerImpl().queryMessageByUniqKey(words[1], words[2])));
      case "view":
        return done(List.of(producer.viewMessage(words[1], words[2])));
      case "send": {
        Message message = new Message(words[1], words[3], words[4], Base64.getDecoder().decode(words[5]));
        SendResult sent = producer.send(message, queue(words[1], words[2]));
        return "{\"done\":0,\"status\":" + quoted(sent.getSendStatus().name()) + ",\"msgId\":" + quoted(sent.getMsgId())
            + ",\"offsetMsgId\":" + quoted(sent.getOffsetMsgId()) + ",\"queueOffset\":" + sent.getQueueOffset() + "}";
      }
      default:
        return "{\"error\":" + quoted("no such command: " + words[0]) + "}";
    }
  }

  static MessageQueue queue(String topic, String id) throws Exception {
    return new MessageQueue(topic, brokerName, Integer.parseInt(id));
  }

  static List<MessageExt> pull(MessageQueue queue) throws Exception {
    List<MessageExt> found = new ArrayList<>();
    long offset = consumer.minOffset(queue);
    long end = consumer.maxOffset(queue);
    while (offset < end) {
      PullResult result = consumer.pull(queue, "*", offset, MOST);
      if (result.getPullStatus() != PullStatus.FOUND) {
        throw new IllegalStateException(result.getPullStatus() + " at offset " + offset + " of " + queue + ", which ends at " + end);
      }
      found.addAll(result.getMsgFoundList());
      offset = result.getNextBeginOffset();
    }
    return found;
  }

  static List<MessageExt> consume(String group, String topic, int count, int seconds) throws Exception {
    BlockingQueue<MessageExt> given = new LinkedBlockingQueue<>();
    DefaultMQPushConsumer pushed = new DefaultMQPushConsumer(group);
    pushed.setNamesrvAddr(nameServer);
    pushed.setInstanceName(group);
    pushed.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    pushed.subscribe(topic, "*");
    pushed.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
      given.addAll(messages);
      return ConsumeOrderlyStatus.SUCCESS;
    });
    List<MessageExt> found = new ArrayList<>();
    long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
    pushed.start();
    try {
      while (found.size() < count) {
        MessageExt next = given.poll(until - System.nanoTime(), TimeUnit.NANOSECONDS);
        if (next == null) {
          break;
        }
        found.add(next);
      }
    } finally {
      pushed.shutdown();
    }
    given.drainTo(found);
    return found;
  }

  static List<MessageExt> query(String topic, String key, long begin, long end, int most) throws Exception {
    try {
      return producer.queryMessage(topic, key, most, begin, end).getMessageList();
    } catch (MQClientException error) {
      if (String.valueOf(error.getMessage()).contains("but no message")) {
        return List.of(); // how the client says that there is none
      }
      throw error;
    }
  }

  static String done(Collection<MessageExt> messages) {
    for (MessageExt message : messages) {
      OUT.println(json(message));
    }
    return "{\"done\":" + messages.size() + "}";
  }

  static String json(MessageExt message) {
    Map<String, String> properties = new TreeMap<>(message.getProperties() == null ? Map.of() : message.getProperties());
    StringBuilder text = new StringBuilder("{");
    text.append("\"topic\":").append(quoted(message.getTopic()));
    text.append(",\"queueId\":").append(message.getQueueId());
    text.append(",\"queueOffset\":").append(message.getQueueOffset());
    text.append(",\"commitLogOffset\":").append(message.getCommitLogOffset());
    text.append(",\"storeSize\":").append(message.getStoreSize());
    text.append(",\"flag\":").append(message.getFlag());
    text.append(",\"sysFlag\":").append(message.getSysFlag());
    text.append(",\"bodyCRC\":").append(message.getBodyCRC());
    text.append(",\"bornTimestamp\":").append(message.getBornTimestamp());
    text.append(",\"bornHost\":").append(quoted(host(message.getBornHost())));
    text.append(",\"storeTimestamp\":").append(message.getStoreTimestamp());
    text.append(",\"storeHost\":").append(quoted(host(message.getStoreHost())));
    text.append(",\"reconsumeTimes\":").append(message.getReconsumeTimes());
    text.append(",\"preparedTransactionOffset\":").append(message.getPreparedTransactionOffset());
    byte[] body = message.getBody() == null ? new byte[0] : message.getBody();
    text.append(",\"body\":").append(quoted(Base64.getEncoder().encodeToString(body)));
    text.append(",\"properties\":{");
    String separator = "";
    for (Map.Entry<String, String> each : properties.entrySet()) {
      text.append(separator).append(quoted(each.getKey())).append(':').append(quoted(each.getValue()));
      separator = ",";
    }
    return text.append("}}").toString();
  }

  static String host(SocketAddress address) {
    InetSocketAddress of = (InetSocketAddress) address;
    String text = of.getAddress().getHostAddress();
    return (text.indexOf(':') < 0 ? text : "[" + text + "]") + ":" + of.getPort();
  }

  static String quoted(String text) {
    if (text == null) {
      return "null";
    }
    StringBuilder json = new StringBuilder("\"");
    for (char unit : text.toCharArray()) {
      if (unit == '"' || unit == '\\') {
        json.append('\\').append(unit);
      } else if (unit < 32 || unit > 126) {
        json.append(String.format("\\u%04x", (int) unit));
      } else {
        json.append(unit);
      }
    }
    return json.append('"').toString();
  }
}
