// An animal in Java: it reports as those in C do (report.h).
import java.io.RandomAccessFile;
import java.nio.ByteOrder;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;

public final class Animal {
    public static void main(String[] words) throws Exception {
        MappedByteBuffer report;
        try (RandomAccessFile file = new RandomAccessFile(System.getenv("ZOO_REPORT"), "rw")) {
            report = file.getChannel().map(FileChannel.MapMode.READ_WRITE, 0, 4096);
        }
        report.order(ByteOrder.LITTLE_ENDIAN);
        byte[][] kept = new byte[5000][200];
        report.putLong(8, ProcessHandle.current().pid());
        report.putLong(0, 1);
        for (long ticks = 1; report.getLong(80) != 1; ticks++) {
            kept[(int) (ticks % kept.length)][0] = 1;
            report.putLong(16, ticks);
            Thread.sleep(10);
        }
        System.exit(7);
    }
}
