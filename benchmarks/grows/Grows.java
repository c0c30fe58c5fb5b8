// A program in Java that becomes bigger in one function, when it gets a line of input.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;

public final class Grows {
    private static final List<byte[]> kept = new ArrayList<>();

    private static int comeAndGo(int n) {
        return new byte[3000 + n % 7].length;
    }

    private static void fill(int blocks) { /* planted: java */
        for (int n = 0; n < blocks; n++) {
            byte[] block = new byte[1000];
            block[n % 1000] = 1;
            kept.add(block);
        }
    }

    public static void main(String[] words) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        int passing = 0;
        for (int n = 0; n < 300; n++) { // until it is compiled
            fill(50);
            passing += comeAndGo(n);
        }
        System.out.println("ready");
        input.readLine();
        for (int n = 0; n < 100; n++) {
            fill(1000);
            passing += comeAndGo(n);
        }
        System.out.println("grew " + (kept.size() + passing));
        input.readLine();
        System.out.println(kept.size());
    }
}
